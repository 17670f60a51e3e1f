// pg-boss: fetches again while batches are full, and is woken by NOTIFY.
const batched = { batchSize: 500, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
const single = { batchSize: 1, localConcurrency: 2, pollingIntervalSeconds: 0.5 }
const grouped = { ...batched, groupConcurrency: 5 }
const optionsOf = ({ kind }) => (kind === 'latency' ? single : kind === 'tenants' ? grouped : batched)

async function open({ url }, shape) {
  const { PgBoss } = await import('pg-boss')
  const boss = new PgBoss({ connectionString: url, useListenNotify: true, schedule: false })
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`))
  await boss.start()
  await boss.createQueue('noop', { notify: true })
  const groupOf = (input) => (shape.kind === 'tenants' ? { group: { id: input.accountId } } : {})
  return {
    sendOne: (input) => boss.send('noop', input),
    sendMany: (inputs) =>
      boss.insert(
        'noop',
        inputs.map((data) => ({ data, ...groupOf(data) })),
      ),
    async work(handle) {
      const id = await boss.work('noop', optionsOf(shape), async (jobs) => {
        for (const { data } of jobs) handle(data)
      })
      return { stop: () => boss.offWork('noop', { id }) }
    },
    close: () => boss.stop({ graceful: false, close: true }),
  }
}

export default {
  name: 'pg-boss',
  packages: ['pg-boss', 'pg'],
  server: 'postgres',
  settings: (shape) =>
    `${Object.entries(optionsOf(shape))
      .map(([name, value]) => `${name} ${value}`)
      .join(', ')}, notify`,
  open,
}
