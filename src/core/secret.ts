/** Where a secret comes from, and its value. */
import { AttemptError } from './errors.ts'
import { hideValue } from './redact.ts'

/** One of them. */
export interface SecretSource {
  /** The environment variable of the worker that holds it, without white space around it. */
  readonly env?: string
  /** Gives it; asked each time, so let it remember what takes long. Trimmed too. */
  readonly read?: () => string | Promise<string>
}

/**
 * The value, which is redacted from now on. @param name what it is, for people
 * @throws AttemptError SLUICE_SECRET_UNAVAILABLE, retryable: it is this worker that lacks it
 */
export async function secretValue(name: string, { env, read }: SecretSource): Promise<string> {
  let why = `its worker has no environment variable ${env}`
  let value: unknown
  try {
    value = env === undefined ? await read?.() : process.env[env]
    if (env === undefined) why = 'its `read` gave no text'
  } catch (error) {
    why = `its \`read\` failed: ${String(error)}`
  }
  // A file's last newline would not be sent with a header, so that what a vendor repeats would not be known.
  const text = typeof value === 'string' ? value.trim() : ''
  if (text !== '') {
    hideValue(text)
    return text
  }
  throw new AttemptError(
    'SLUICE_SECRET_UNAVAILABLE',
    `secret ${name} is not there: ${why}. Nothing was sent; another attempt, or another worker, may have it`,
    { retryable: true },
  )
}
