// Full load for ten minutes beside an open transaction that was forgotten.
import { enduring } from '../endurance.mjs'

export default enduring({ name: 'endurance-held', held: true })
