/** Refuses an input that a command has printed: it would be sent with marks in place of secrets. */
import { UsageError } from '../core/errors.ts'
import { isRecord } from '../celery/json.ts'
import { mark } from '../core/redact.ts'

/** @throws UsageError SLUICE_INVALID_INPUT for an input from which secrets were taken */
export function mustBeWhole(input: unknown): void {
  if (!JSON.stringify(input)?.includes(mark)) return
  const text = `the input has ${mark} where a secret was left out of what was shown: write the secret; \`sluice jobs export --reveal\` shows it`
  throw new UsageError('SLUICE_INVALID_INPUT', text)
}

/** @throws UsageError SLUICE_BAD_ROW for a line of an export, which has an input among other fields */
export function mustBeInput(row: unknown): void {
  if (!isRecord(row) || !['id', 'state', 'task', 'input', 'attempts', 'createdAt'].every((field) => field in row))
    return
  const text =
    'this is the record of a job, as `sluice jobs export` writes it: send its field `input` alone, or run failed jobs again by `sluice retry`'
  throw new UsageError('SLUICE_BAD_ROW', text)
}
