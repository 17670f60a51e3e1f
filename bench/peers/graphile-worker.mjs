// graphile-worker, tuned for throughput as in its documentation ("performance"), otherwise with defaults.
import pg from 'pg'

const tuned = {
  concurrentJobs: 24,
  localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
}
const silent = () => () => {}

async function open({ url }, shape) {
  const { Logger, makeWorkerUtils, run } = await import('graphile-worker')
  const pgPool = new pg.Pool({ connectionString: url, max: 10 })
  pgPool.on('error', () => {})
  pgPool.on('connect', (client) => client.on('error', () => {}))
  const logger = new Logger(silent)
  const utils = await makeWorkerUtils({ pgPool, logger })
  await utils.migrate()
  const jobOf = (input) => ({
    identifier: 'noop',
    payload: input,
    ...(shape.kind === 'tenants' ? { queueName: input.accountId } : {}),
  })
  return {
    sendOne: (input) => utils.addJob('noop', input),
    sendMany: (inputs) => utils.addJobs(inputs.map(jobOf)),
    async work(handle) {
      const taskList = { noop: async (input) => handle(input) }
      const preset = { worker: shape.kind === 'throughput' || shape.kind === 'keys' ? tuned : { concurrentJobs: 10 } }
      return run({ pgPool, logger, taskList, preset, noHandleSignals: true })
    },
    async close() {
      await utils.release()
      await pgPool.end()
    },
  }
}

export default {
  name: 'graphile-worker',
  packages: ['graphile-worker', 'pg'],
  server: 'postgres',
  settings: ({ kind }) =>
    kind === 'throughput' || kind === 'keys'
      ? '24 jobs at once, localQueue 500, refetchDelay 10 ms, completeJobBatchDelay 0, failJobBatchDelay 0; no history, no limits'
      : `10 jobs at once, defaults${kind === 'tenants' ? ', a queue for each tenant (serial: it has no rates)' : ''}`,
  open,
}
