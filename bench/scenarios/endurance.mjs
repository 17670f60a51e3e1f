// Full load for ten minutes.
import { enduring } from '../endurance.mjs'

export default enduring({ name: 'endurance', held: false })
