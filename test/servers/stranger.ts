/** A client that is not Sluice, and locks its rows. */
import pg from 'pg'
import type { TestContext } from 'vitest'

/** Locks a job until the returned function is called, or the test has ended. */
export async function lockJob({ onTestFinished }: TestContext, url = '', id = ''): Promise<() => Promise<void>> {
  const stranger = new pg.Client(url)
  await stranger.connect()
  onTestFinished(() => stranger.end())
  await stranger.query('begin')
  await stranger.query('select 1 from sluice.job where id = $1 for update', [id])
  return async () => void (await stranger.query('commit'))
}
