/** Sends many jobs from a stream of rows: admitted one by one, written in batches, in order, with bounded memory. */
import type { Clock } from '../core/clock.ts'
import { SluiceError, StoreError, UsageError, textOfError } from '../core/errors.ts'
import { many } from '../core/figures.ts'
import { statementCharsMax } from '../core/payload.ts'
import type { JobId } from '../core/result.ts'
import type { NewJob } from '../store/send.ts'
import { admit } from './admit.ts'
import type { Rulebook } from './rule.ts'
import type { SendManyOptions, SendOptions } from './send-options.ts'
import type { AnyTask } from './task.ts'
import type { TxLike } from '../db/tx.ts'

/** The job of one row: an input, and options of its own. */
export interface SendRow<Input> {
  input: Input
  options?: Omit<SendOptions<never>, 'tx'> | undefined
}

/** Result counts, so far or in all. */
export interface Sent {
  /** Rows recorded as new jobs. */
  sent: number
  /** Rows whose idempotency key was known: an earlier job takes their place. None of them replaces a job, which keeps its id. */
  known: number
  /** Rejected rows, each passed to `onBad`. */
  bad: number
}

/** Options for sending rows; see the fields. */
export interface SendRowsOptions<Row, Input, Result = unknown> {
  /** Makes an input from a row. If it throws, the row is bad. */
  read: (row: Row) => SendRow<Input> | Promise<SendRow<Input>>
  /**
   * Called for each bad row, which is then left out; it may throw, to stop there. Default: the first bad row stops the
   * call.
   */
  onBad?: ((error: SluiceError, row: Row) => void) | undefined
  /**
   * Called when a batch is durable (with `tx`: written), with the ids of its jobs, in the order of the rows; for a known
   * idempotency key that is the earlier job's id.
   */
  onProgress?: ((sent: Sent, ids: readonly JobId<Result>[]) => void) | undefined
  /** Stops after the current batch; the call resolves. */
  signal?: AbortSignal | undefined
  /** As in `SendOptions`: all batches in the caller's own transaction. */
  tx?: TxLike | undefined
}

/** The parts that sending rows uses. */
interface Door {
  clock: Clock
  rulebook: Rulebook
  /** Writes one batch; resolves to the ids that are in force. */
  write: (batch: NewJob[]) => Promise<string[]>
}

const batchRows = 500

/**
 * Returns how rows are sent that are inputs, all with the same options.
 * @throws UsageError SLUICE_BAD_OPTION for an id or a key, because all rows but one would count as sent before
 */
export function alike<Input>(options: SendManyOptions<never>): SendRowsOptions<Input, Input> {
  const { tx, ...each } = options ?? {}
  for (const name of ['id', 'idempotencyKey', 'replace'] as const)
    if ((each as SendOptions)[name] !== undefined)
      throw new UsageError(
        'SLUICE_BAD_OPTION',
        `\`sendMany\` takes no ${name}, which one job has: use \`sluice.sendRows\``,
      )
  return { read: (input) => ({ input, options: each }), ...(tx === undefined ? {} : { tx }) }
}

/**
 * Reads, admits and writes rows. If the call fails, rows written before remain; with idempotency keys it can be repeated.
 */
export async function sendRows<Row, Input, Result = unknown>(
  task: AnyTask,
  rows: AsyncIterable<Row> | Iterable<Row>,
  { read, onBad, onProgress, signal, tx }: SendRowsOptions<Row, Input, Result>,
  door: Door,
): Promise<Sent> {
  if (!isSendable(rows)) throw new UsageError('SLUICE_BAD_OPTION', 'what is sent is no list or stream')
  const total: Sent = { sent: 0, known: 0, bad: 0 }
  let [batch, chars]: [NewJob[], number] = [[], 0]
  let writing: Promise<void> | undefined
  const write = async (jobs: NewJob[]) => {
    const ids = await door.write(jobs)
    const known = jobs.filter((job, i) => job.key !== null && !job.replaces && ids[i] !== job.id).length
    total.known += known
    total.sent += jobs.length - known
    onProgress?.({ ...total }, ids)
  }
  /** Starts to write the current batch when the previous one is written: in order, one batch at a time. */
  const begin = async () => {
    await writing
    if (batch.length === 0) return
    writing = write(batch)
    // The next await of it throws the error.
    writing.catch(() => {})
    ;[batch, chars] = [[], 0]
    // Otherwise the batch would not leave this process before the next one is full: admitting yields only to promises.
    await new Promise((resolve) => setImmediate(resolve))
  }
  const flush = async () => {
    await begin()
    await writing
  }
  let index = 0
  const refuse = (error: unknown, row: Row) => {
    if (!SluiceError.is(error) || error instanceof StoreError) throw error
    if (onBad === undefined) {
      const message = `row ${index}: ${error.message} (${many(index, 'row')} before it ${index === 1 ? 'is' : 'are'} recorded)`
      throw new UsageError(error.code, message, { cause: error })
    }
    total.bad++
    onBad(error, row)
  }
  try {
    for await (const row of rows) {
      try {
        const job = await admitted(task, row, read, door, tx)
        batch.push(job)
        chars += job.input.length
      } catch (error) {
        try {
          refuse(error, row)
        } catch (reason) {
          await flush()
          throw reason
        }
      }
      index++
      // The store writes one batch while the next is admitted; but the caller's own transaction must not be used
      // meanwhile.
      if (batch.length === batchRows || chars >= statementCharsMax) await (tx === undefined ? begin() : flush())
      if (signal?.aborted) break
    }
    await flush()
  } finally {
    // However this ended, nothing is written after it.
    await writing?.catch(() => {})
  }
  return total
}

/** A text is none, although it could be read letter by letter. */
function isSendable(rows: unknown): boolean {
  return typeof rows === 'object' && rows !== null && (Symbol.asyncIterator in rows || Symbol.iterator in rows)
}

async function admitted<Row, Input>(
  task: AnyTask,
  row: Row,
  read: SendRowsOptions<Row, Input>['read'],
  { clock, rulebook }: Door,
  tx: TxLike | undefined,
): Promise<NewJob> {
  let made: SendRow<Input>
  try {
    made = await read(row)
  } catch (error) {
    if (SluiceError.is(error)) throw error
    const why = textOfError(error)
    throw new UsageError('SLUICE_BAD_ROW', `the row cannot be read: ${why}`, { cause: error })
  }
  return admit(task, made.input, tx === undefined ? (made.options ?? {}) : { ...made.options, tx }, clock, rulebook)
}
