/** A real RabbitMQ for tests: private ports, temporary directory, gone with this process. */
import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { inject } from 'vitest'
import { freePort, install, isExecutable } from '../../scripts/postgres.mjs'
import { serve, type Server } from './program.ts'

/** A virtual host that nobody else uses. */
export interface Broker {
  /** `amqp://guest:guest@127.0.0.1:port/vhost` */
  readonly url: string
  /** The virtual host. */
  readonly name: string
  /** Evaluates an Erlang expression in the server, and resolves to its value as Erlang writes it. */
  evaluate(expression: string): Promise<string>
}

/** A RabbitMQ of a test's own. What is durable outlives `kill` and `start`. */
export interface RabbitServer extends Server {
  /** With TLS; only if `tls` was given. */
  readonly tlsUrl: string
  /** Evaluates an Erlang expression in the server, and resolves to its value as Erlang writes it. */
  evaluate(expression: string): Promise<string>
  /** Creates a virtual host. */
  fresh(): Promise<Broker>
}

/** Where a RabbitMQ's own commands find it. */
interface Node {
  port: number
  name: string
  cookie: string
  epmdPort: number
}

const compose =
  `echo 'services: {rabbitmq: {image: "rabbitmq:3-management", ports: ["127.0.0.1:5672:5672"]}}' ` +
  `| docker compose -f - up -d --wait`

let run: Promise<Node> | undefined

/** Creates a virtual host on the run's one RabbitMQ, for one test file or one test. The first request starts the server. */
export async function freshBroker(): Promise<Broker> {
  run ??= requestNode()
  return freshHost(await run)
}

/** Starts the run's one RabbitMQ, for the global set-up. What `node` holds is for `freshBroker`. */
export async function openRabbit(): Promise<{ node: Node; close(): Promise<void> }> {
  const { node, close } = await startNode({})
  return { node, close }
}

/** Starts a RabbitMQ of a test's own. `tls`: the paths of a certificate and its key. */
export async function startRabbit(options: { tls?: { cert: string; key: string } } = {}): Promise<RabbitServer> {
  const { server, node, tlsPort, close } = await startNode(options)
  const own = {
    tlsUrl: `amqps://guest:guest@127.0.0.1:${tlsPort}/%2f`,
    evaluate: (expression: string) => evaluate(node, expression),
    fresh: () => freshHost(node),
    close,
  }
  return Object.defineProperties(server, Object.getOwnPropertyDescriptors(own)) as RabbitServer
}

interface Started {
  server: Server
  node: Node
  tlsPort: number
  close(): Promise<void>
}

async function startNode({ tls }: { tls?: { cert: string; key: string } }): Promise<Started> {
  const bin = await findScripts()
  const base = mkdtempSync(join(tmpdir(), 'sluice-rabbitmq-'))
  const [port, distPort, epmdPort, tlsPort] = [await freePort(), await freePort(), await freePort(), await freePort()]
  const node = { port, name: `sluice${port}@localhost`, cookie: randomUUID(), epmdPort }
  const secure = tls === undefined ? [] : [`{ssl_listeners, [{"127.0.0.1", ${tlsPort}}]}`, certificate(tls)]
  writeFileSync(join(base, 'rabbitmq.config'), `[{rabbit, [${[...settings(port), ...secure].join(', ')}]}].\n`)
  writeFileSync(join(base, 'plugins'), '[].\n')
  writeFileSync(join(base, 'boot'), boot)
  const modules = linkModules(join(bin, '../plugins'), base)
  // The server would start an epmd that stays for ever.
  const names = await serve({
    name: 'epmd',
    file: 'epmd',
    args: ['-port', String(epmdPort), '-address', '127.0.0.1'],
    base: mkdtempSync(join(tmpdir(), 'sluice-epmd-')),
    port: epmdPort,
    url: '',
    isReady: () => answers(epmdPort, Buffer.from([0, 1, 110])),
  })
  try {
    const server = await serve({
      name: 'RabbitMQ',
      file: join(bin, 'rabbitmq-server'),
      args: [],
      env: { ...environment(base, node, distPort), ...modules },
      base,
      port,
      url: `amqp://guest:guest@127.0.0.1:${port}/%2f`,
      isReady: async () =>
        (await answers(port, Buffer.from('AMQP\0\0\x09\x01'))) && (tls === undefined || (await accepts(tlsPort))),
    })
    const end = server.close
    const close = async () => {
      await end()
      await names.close()
    }
    return { server, node, tlsPort, close }
  } catch (error) {
    await names.close()
    throw error
  }
}

/**
 * As terms of Erlang, because `rabbitmq.conf` would be translated at each start. The machine's other programs decide how much
 * memory and disk are left; tests raise the alarms that they want.
 */
const settings = (port: number) => [
  `{tcp_listeners, [{"127.0.0.1", ${port}}]}`,
  '{vm_memory_high_watermark, {absolute, "4GB"}}',
  '{disk_free_limit, "1MB"}',
  '{log, [{file, [{level, warning}]}]}',
]

const certificate = ({ cert, key }: { cert: string; key: string }) =>
  `{ssl_options, [{certfile, "${cert}"}, {keyfile, "${key}"}]}`

/** What only plugins need that no test enables. */
const unused = /^(rabbitmq_(?!prelaunch)|amqp10_client|amqp_client|base64url|cow|eetcd|gun|jose|prometheus|quantile)/

/**
 * Links the server's modules into the folder `modules`, where Erlang looks first. It would look for each of a thousand modules in up
 * to 90 folders, which is half of the work of a start. What it lists as plugins, and reads, are only the applications that it runs:
 * with the terms of Erlang, that saves an eighth of the rest. Returns the variables that this takes.
 */
function linkModules(plugins: string, base: string): NodeJS.ProcessEnv {
  if (!existsSync(plugins)) return {}
  const [modules, few] = [join(base, 'modules'), join(base, 'applications')]
  for (const folder of [modules, few]) mkdirSync(folder)
  for (const plugin of readdirSync(plugins).filter((name) => !unused.test(name))) {
    symlinkSync(join(plugins, plugin), join(few, plugin))
    const from = join(plugins, plugin, 'ebin')
    for (const file of existsSync(from) ? readdirSync(from) : [])
      if (file.endsWith('.beam') && !existsSync(join(modules, file))) symlinkSync(join(from, file), join(modules, file))
  }
  return { RABBITMQ_PLUGINS_DIR: few }
}

/**
 * Erlang that starts the server. Loading modules is nearly all of its work: loaded one by one, each of them copies the table of
 * all exported functions. So most are loaded at once. RabbitMQ would also load all modules of the libraries that it uses, to look
 * for steps of its own start there; it finds none listed, and those that it calls are loaded when it calls them.
 */
const boot = `
Keys = fun(App) ->
  {ok, [{application, App, Found}]} = file:consult(code:where_is_file(atom_to_list(App) ++ ".app")),
  Found
end,
Libraries = [asn1, compiler, crypto, inets, mnesia, os_mon, public_key, ssl, syntax_tools, tools, xmerl],
Installed = [App || App <- Libraries, code:where_is_file(atom_to_list(App) ++ ".app") =/= non_existing],
Used = lists:append([proplists:get_value(modules, Keys(App)) || App <- [stdlib, mnesia]]),
Own = [list_to_atom(filename:basename(File, ".beam")) || File <- filelib:wildcard("modules/*.beam")],
[application:load({application, App, lists:keystore(modules, 1, Keys(App), {modules, []})}) || App <- Installed],
code:ensure_modules_loaded(Used ++ Own),
rabbit:boot().
`

function environment(base: string, node: Node, distPort: number): NodeJS.ProcessEnv {
  return {
    ...process.env,
    HOME: base,
    ERL_EPMD_PORT: String(node.epmdPort),
    ERL_EPMD_ADDRESS: '127.0.0.1',
    RABBITMQ_NODENAME: node.name,
    RABBITMQ_DIST_PORT: String(distPort),
    RABBITMQ_BASE: base,
    RABBITMQ_CONFIG_FILE: join(base, 'rabbitmq.config'),
    RABBITMQ_ADVANCED_CONFIG_FILE: join(base, 'advanced.config'),
    RABBITMQ_CONF_ENV_FILE: join(base, 'none'),
    RABBITMQ_ENABLED_PLUGINS_FILE: join(base, 'plugins'),
    RABBITMQ_MNESIA_BASE: join(base, 'mnesia'),
    RABBITMQ_LOG_BASE: join(base, 'logs'),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: [
      `-pa ${join(base, 'modules')} +sbwt none +sbwtdcpu none +sbwtdio none -eval file:eval("boot").`,
      // A server without a name takes one when it boots, and has a second Erlang look for epmd before.
      `-sname ${node.name} -setcookie ${node.cookie} -kernel inet_dist_listen_min ${distPort} inet_dist_listen_max ${distPort}`,
    ].join(' '),
    // The script starts Erlang, and `boot` RabbitMQ in it.
    RABBITMQ_NODE_ONLY: '1',
    // With these two the script becomes the server, so that a signal meets the server itself.
    RABBITMQ_ALLOW_INPUT: '1',
    RABBITMQ_SERVER_START_ARGS: '-noinput',
  }
}

/** Creates a virtual host of the user `guest`. */
async function freshHost(node: Node): Promise<Broker> {
  const name = `test-${randomUUID()}`
  const [host, user] = [`<<"${name}">>`, '<<"guest">>']
  await evaluate(
    node,
    `rabbit_vhost:add(${host}, ${user}), ` +
      `rabbit_auth_backend_internal:set_permissions(${user}, ${host}, <<".*">>, <<".*">>, <<".*">>, ${user})`,
  )
  const url = `amqp://guest:guest@127.0.0.1:${node.port}/${name}`
  return { url, name, evaluate: (expression) => evaluate(node, expression) }
}

async function evaluate({ name, cookie, epmdPort }: Node, expression: string): Promise<string> {
  const env = { ...process.env, ERL_EPMD_PORT: String(epmdPort) }
  // With a name of its own: two of one name cannot be connected at a time.
  const args = ['-h', `caller${randomUUID()}`, '-sname', name, '-c', cookie, '-e']
  const { said, failed } = await new Promise<{ said: string; failed: unknown }>((resolve) => {
    const child = execFile('erl_call', args, { env }, (error, stdout, stderr) =>
      resolve({ said: `${stdout}${stderr}`, failed: error }),
    )
    child.stdin?.end(`${expression}.\n`)
  })
  const value = /^\{ok, ([^]*)\}\s*$/.exec(said)?.[1]
  if (value === undefined || failed !== null) throw new Error(`RabbitMQ answered ${expression} with ${said}`)
  return value
}

async function requestNode(): Promise<Node> {
  const response = await fetch(`${inject('serverDoor')}/rabbitmq`)
  if (!response.ok) throw new Error(await response.text())
  return (await response.json()) as Node
}

/** True when something listens there. */
function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      resolve(true)
      socket.destroy()
    }).once('error', () => resolve(false))
  })
}

/** True when it answers the bytes with some. */
function answers(port: number, request: Buffer): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(request))
    socket.setTimeout(1_000, () => socket.destroy())
    socket.once('data', () => {
      resolve(true)
      socket.destroy()
    })
    socket.once('error', () => resolve(false))
    socket.once('close', () => resolve(false))
  })
}

/** Finds the folder of RabbitMQ's own scripts: in Debian's place, in PATH, or there after installing Debian's package. */
async function findScripts(): Promise<string> {
  const found = scripts()
  if (found !== undefined) return found
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) {
    await install('rabbitmq-server')
    const installed = scripts()
    if (installed !== undefined) return installed
  }
  throw new Error(
    'No RabbitMQ found (rabbitmq-server, in PATH or /usr/lib/rabbitmq). Tests that stop and kill it need the program ' +
      `itself: install it (Debian: apt-get install rabbitmq-server). To try Sluice, start one with\n  ${compose}`,
  )
}

/** Debian's commands in PATH are wrappers that change the user and the directory, so its own scripts come first. */
function scripts(): string | undefined {
  const debian = '/usr/lib/rabbitmq/lib'
  const places = [
    ...(existsSync(debian) ? readdirSync(debian).map((version) => join(debian, version, 'sbin')) : []),
    ...(process.env['PATH'] ?? '').split(delimiter),
  ]
  return places.find((place) => place !== '' && isExecutable(join(place, 'rabbitmq-server')))
}
