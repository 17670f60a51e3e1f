/** How schedules send. Only this file names their SQL functions. */
import type { FunctionName } from '../../src/generated/sql.ts'

/** What the statements of schedules call: what a test counts, delays or loses. */
export const scheduleCalls = { fire: 'fire_schedule' } satisfies Record<string, FunctionName>
