/** Each test file ends with the clean-up of what it left. */
import { cleanUpAtEnd } from './ends.ts'

cleanUpAtEnd()
