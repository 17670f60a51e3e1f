// RabbitMQ with its own port mapper (epmd), apart from other nodes on this machine; each sample has its own queues.
import { randomBytes } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { freePort } from '../../scripts/postgres.mjs'
import { directory, program, serve } from './process.mjs'

export async function start() {
  const file = await program('rabbitmq-server', 'rabbitmq-server', ['/usr/lib/rabbitmq/bin'])
  const epmd = await program('epmd', 'erlang-base')
  const [port, epmdPort, distPort] = await Promise.all([freePort(), freePort(), freePort()])
  const mapper = await serve({
    file: epmd,
    args: ['-port', String(epmdPort)],
    base: directory('epmd'),
    port: epmdPort,
  })
  const base = directory('rabbitmq')
  const server = await serve({
    file,
    args: [],
    base,
    port,
    // Started without a shell, so that the process is the server.
    env: {
      ...process.env,
      HOME: base,
      RABBITMQ_ALLOW_INPUT: '1',
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-noinput',
      RABBITMQ_NODENAME: `${name()}@localhost`,
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: String(port),
      RABBITMQ_DIST_PORT: String(distPort),
      ERL_EPMD_PORT: String(epmdPort),
      RABBITMQ_MNESIA_BASE: join(base, 'data'),
      RABBITMQ_LOG_BASE: join(base, 'logs'),
      RABBITMQ_CONFIG_FILE: join(base, 'none'),
      RABBITMQ_ENABLED_PLUGINS_FILE: join(base, 'plugins'),
      RABBITMQ_CONF_ENV_FILE: join(base, 'none.conf'),
      RABBITMQ_PID_FILE: join(base, 'pid'),
    },
  }).catch(async (error) => {
    await mapper.close()
    throw error
  })
  return {
    pid: server.pid,
    about: `RabbitMQ ${version()}, durable classic queues, persistent messages, defaults`,
    // A new queue, without messages of the previous sample.
    place: async () => ({ url: `amqp://guest:guest@127.0.0.1:${port}//`, queue: name(), remove: async () => {} }),
    async close() {
      await server.close()
      await mapper.close()
    },
  }
}

const name = () => `bench${randomBytes(4).toString('hex')}`

/** Finds Debian's folder, which has the version in its name. */
function version(root = '/usr/lib/rabbitmq/lib') {
  const name = existsSync(root) ? readdirSync(root).find((each) => each.startsWith('rabbitmq_server-')) : undefined
  return name?.slice('rabbitmq_server-'.length) ?? '(version unknown)'
}
