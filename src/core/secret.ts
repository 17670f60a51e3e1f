/** Reads the values of secrets. */
import { AttemptError } from './errors.ts'
import { hideValue } from './redact.ts'

/** Where the value of one secret comes from. */
export interface SecretSource {
  /** The environment variable of the worker that holds the value; white space around the value is removed. */
  readonly env?: string | undefined
  /**
   * Returns the value. It is called for each use, so it should cache what takes long. White space is removed here, too.
   */
  readonly read?: (() => string | Promise<string>) | undefined
}

/**
 * Returns the value of a secret, and redacts it in this process from now on. @param name of the secret, for messages
 * @throws AttemptError SLUICE_SECRET_UNAVAILABLE, retryable: another worker may have it
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
  // HTTP would not send a trailing newline in a header; with it, the value would not be recognised in what a vendor
  // repeats.
  const text = typeof value === 'string' ? value.trim() : ''
  if (text !== '') {
    hideValue(text)
    return text
  }
  throw new AttemptError(
    'SLUICE_SECRET_UNAVAILABLE',
    `secret ${name} is not available: ${why}. Nothing was sent; another attempt, or another worker, may have it`,
    { retryable: true },
  )
}
