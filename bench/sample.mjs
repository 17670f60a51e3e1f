// Takes one sample of one scenario with one peer, for run.mjs. The process then exits, whatever a peer leaves running.
// The parent has ended.
process.on('disconnect', () => process.exit(1))

const asked = await new Promise((resolve) => process.once('message', resolve))

try {
  const { default: scenario } = await import(`./scenarios/${asked.scenario}.mjs`)
  const { default: peer } = await import(`./peers/${asked.peer}.mjs`)
  const { place, pids, options } = asked
  const shape = scenario.shape(options)
  // A peer that cannot be driven from here (another language) has its own implementation of the scenario.
  const body = peer.own?.[asked.scenario] ?? scenario.run
  const lines = await body({ peer, place, pids, options, shape })
  answer({ lines, settings: peer.settings(shape) })
} catch (error) {
  answer({ error: error.stack ?? String(error) })
}

function answer(told) {
  process.send(told, () => process.exit(0))
}
