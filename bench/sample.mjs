// One sample of one scenario with one peer, asked for by run.mjs. Ends with its process, whatever a peer leaves running.
// Nobody waits for it any more.
process.on('disconnect', () => process.exit(1))

const asked = await new Promise((resolve) => process.once('message', resolve))

try {
  const { default: scenario } = await import(`./scenarios/${asked.scenario}.mjs`)
  const { default: peer } = await import(`./peers/${asked.peer}.mjs`)
  const { place, pids, options } = asked
  const shape = scenario.shape(options)
  // A peer that cannot be driven from here (another language) brings the scenario's body with it.
  const body = peer.own?.[asked.scenario] ?? scenario.run
  const lines = await body({ peer, place, pids, options, shape })
  answer({ lines, settings: peer.settings(shape) })
} catch (error) {
  answer({ error: error.stack ?? String(error) })
}

function answer(told) {
  process.send(told, () => process.exit(0))
}
