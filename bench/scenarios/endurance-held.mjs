// Full load for ten minutes beside somebody's forgotten transaction.
import { enduring } from '../endurance.mjs'

export default enduring({ name: 'endurance-held', held: true })
