// DBOS: each job is a workflow in a queue. Sent by its client, so that nothing runs before `work`.
import { windowOf } from '../load.mjs'

const app = 'bench'

function queueOptions({ kind, rate, perTenant }) {
  const limitOf = (text) => {
    const { units, windowMs } = windowOf(text)
    return { limitPerPeriod: units, periodSec: windowMs / 1_000 }
  }
  if (kind === 'tenants') return { partitionRateLimit: limitOf(perTenant) }
  return {
    workerConcurrency: 100,
    ...(kind === 'limited' ? { rateLimit: limitOf(rate) } : { minPollingIntervalMs: 100 }),
  }
}

async function open({ url }, shape) {
  const { DBOS, DBOSClient } = await import('@dbos-inc/dbos-sdk')
  let handle = () => {}
  const noop = async (input) => handle(input)
  DBOS.registerWorkflow(noop, { name: 'noop' })
  const launch = async () => {
    DBOS.setConfig({ name: app, systemDatabaseUrl: url, logLevel: 'error' })
    await DBOS.launch()
    await DBOS.registerQueue('noop', { ...queueOptions(shape), onConflict: 'never_update' })
  }
  // Creates the tables and the queue.
  await launch()
  await DBOS.shutdown()
  const client = await DBOSClient.create({ systemDatabaseUrl: url, name: app })
  const send = (input) =>
    client.enqueue(
      {
        workflowName: 'noop',
        queueName: 'noop',
        ...(shape.kind === 'tenants' ? { queuePartitionKey: input.accountId } : {}),
      },
      input,
    )
  return {
    sendOne: send,
    // DBOS has no bulk call.
    sendMany: async (inputs) => {
      let next = 0
      const lane = async () => {
        while (next < inputs.length) await send(inputs[next++])
      }
      await Promise.all(Array.from({ length: 16 }, lane))
    },
    async work(handler) {
      handle = handler
      await launch()
      return { stop: () => DBOS.shutdown() }
    },
    close: () => client.destroy(),
  }
}

export default {
  name: 'dbos',
  packages: ['@dbos-inc/dbos-sdk', 'pg'],
  server: 'postgres',
  slow: true,
  jobsMax: 2_000,
  settings: (shape) => JSON.stringify(queueOptions(shape)).replaceAll('"', ''),
  promise: ({ rate }) => {
    const perSecond = Number.parseInt(rate, 10)
    return { burst: perSecond, perSecond, worst: perSecond }
  },
  open,
}
