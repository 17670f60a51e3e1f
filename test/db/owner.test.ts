import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { connectInfo, own } from '../../src/db/owner.ts'
import { start } from './fixtures/child.ts'
import type { Child } from './fixtures/child.ts'
import { isLong } from '../long.ts'

let dir: string
const children: Child[] = []

beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-owner-'))
})

afterEach(async () => {
  delete process.env['SLUICE_TAKE_OVER']
  vi.restoreAllMocks()
  await Promise.all(children.splice(0).map((child) => child.kill()))
  fs.rmSync(dir, { recursive: true, force: true })
})

function child(): Child {
  const made = start('own.ts', dir)
  children.push(made)
  return made
}

async function winner(): Promise<Child> {
  const made = child()
  await made.line((line) => line === 'ready')
  made.process.stdin.write('go\n')
  await made.line((line) => line === 'won')
  return made
}

/** Leaves the directory as after kill -9 of its owner, with what the claim says changed. */
async function deadClaim(change: Record<string, unknown>): Promise<void> {
  await (await winner()).kill()
  const [name] = fs.readdirSync(path.join(dir, 'owner')).filter((each) => each.startsWith('claim-'))
  const file = path.join(dir, 'owner', name!)
  fs.writeFileSync(file, JSON.stringify({ ...JSON.parse(fs.readFileSync(file, 'utf8')), ...change }))
}

test(
  'of many processes that open at once exactly one wins, again after each kill -9 of the winner',
  { timeout: 300_000 },
  async () => {
    for (let round = 0; round < (isLong ? 4 : 2); round++) {
      const openers = Array.from({ length: isLong ? 12 : 5 }, child)
      await Promise.all(openers.map((each) => each.line((line) => line === 'ready')))
      for (const each of openers) each.process.stdin.write('go\n')
      const said = await Promise.all(openers.map((each) => each.line((line) => line !== 'ready')))
      const winners = openers.filter((_, i) => said[i] === 'won')
      expect(winners).toHaveLength(1)
      const lost = said.filter(
        (line) =>
          line.startsWith(`lost SLUICE_STORE_OWNED`) &&
          line.includes(`process ${winners[0]!.process.pid} on ${os.hostname()}`),
      )
      expect(lost, said.join('\n')).toHaveLength(openers.length - 1)
      await winners[0]!.kill()
    }
  },
)

test('a stopped owner still owns', async () => {
  const stopped = await winner()
  stopped.process.kill('SIGSTOP')
  await expect(own(dir)).rejects.toMatchObject({
    code: 'SLUICE_STORE_OWNED',
    message: expect.stringContaining(`process ${stopped.process.pid} `) as string,
  })
  process.env['SLUICE_TAKE_OVER'] = '1'
  await expect(own(dir)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
  await stopped.kill()
  await (await own(dir)).release()
})

test('a stopped owner still owns where so many have knocked that the kernel takes no more', async () => {
  const stopped = await winner()
  stopped.process.kill('SIGSTOP')
  const { host, port } = (await connectInfo(dir))!
  const knocking: net.Socket[] = []
  const knock = () =>
    new Promise<string>((resolve) => {
      const socket = net.connect(path.join(host, `.s.PGSQL.${port}`))
      knocking.push(socket)
      socket.once('connect', () => resolve('taken'))
      socket.once('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)))
    })
  let heard = 'taken'
  while (heard === 'taken') heard = await knock()
  expect(heard).toBe('EAGAIN')
  process.env['SLUICE_TAKE_OVER'] = '1'
  await expect(own(dir)).rejects.toMatchObject({ message: expect.stringContaining('is in use by') as string })
  for (const socket of knocking) socket.destroy()
})

test('a second opener in the same process is refused until the first releases', async () => {
  const first = await own(dir)
  await expect(own(dir)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
  expect(await connectInfo(dir)).toMatchObject({ host: fs.realpathSync(dir), port: 5432 })
  await first.release()
  expect(await connectInfo(dir)).toBeUndefined()
  const second = await own(dir)
  await second.release()
})

test('a dead claim of another machine is not judged, unless the user does', async () => {
  await deadClaim({ host: 'elsewhere', machine: 'elsewhere', boot: 'another' })
  await expect(own(dir)).rejects.toMatchObject({
    code: 'SLUICE_STORE_OWNED',
    message: expect.stringContaining('SLUICE_TAKE_OVER=1') as string,
  })
  process.env['SLUICE_TAKE_OVER'] = '1'
  await (await own(dir)).release()
})

test('a claim of this machine before its reboot is dead', async () => {
  await deadClaim({ boot: 'the one before' })
  const owner = await own(dir)
  expect(await connectInfo(dir)).toBeDefined()
  await owner.release()
})

test('a claim whose socket is missing proves nothing', async () => {
  await deadClaim({ socket: 'missing.sock' })
  await expect(own(dir)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
})

test('a claim that cannot be read proves nothing', async () => {
  await deadClaim({ socket: '../../elsewhere.sock' })
  await expect(own(dir)).rejects.toMatchObject({
    code: 'SLUICE_STORE_OWNED',
    message: expect.stringContaining('an unknown process') as string,
  })
})

test('a directory whose path is too long for a socket has one owner too, and clients find it', async () => {
  const long = path.join(dir, 'd'.repeat(120), 'e'.repeat(120))
  fs.mkdirSync(long, { recursive: true })
  const owner = await own(long)
  owner.onClient((socket) => socket.end('hello'))
  await expect(own(long)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
  const info = await connectInfo(long)
  const heard = await new Promise<string>((resolve, reject) => {
    net
      .connect(path.join(info!.host, `.s.PGSQL.${info!.port}`))
      .on('data', (chunk) => resolve(chunk.toString()))
      .on('error', reject)
  })
  expect(heard).toBe('hello')
  await owner.release()
})

test('owners clean up after those before them, but never remove the highest claim', async () => {
  for (let i = 0; i < 110; i++) await (await own(dir)).release()
  const left = fs.readdirSync(path.join(dir, 'owner')).sort()
  expect(left.filter((name) => name.endsWith('.sock') || name.endsWith('.draft'))).toEqual([])
  expect(left.length).toBeLessThanOrEqual(101)
  expect(left.at(-1)).toBe('claim-000000000110.json')
})

/** A claim that the directory has, and those who look do not see until it is shown. */
function hidden(number: number): { show(): void } {
  const name = path.join(dir, 'owner', `claim-${String(number).padStart(12, '0')}.json`)
  fs.renameSync(name, `${name}.hidden`)
  return { show: () => fs.renameSync(`${name}.hidden`, name) }
}

describe('while an opener looks', () => {
  test('many come and go, and one owns: a number that was used and removed makes no second owner', async () => {
    const owner = await own(dir)
    const [name] = fs.readdirSync(path.join(dir, 'owner')).filter((each) => each.endsWith('.json'))
    const claim = path.join(dir, 'owner', name!)
    fs.renameSync(claim, path.join(dir, 'later'))
    const link = fs.linkSync
    vi.spyOn(fs, 'linkSync').mockImplementationOnce((...args) => {
      fs.renameSync(path.join(dir, 'later'), claim.replace('001.json', '150.json'))
      link(...args)
    })
    await expect(own(dir)).rejects.toMatchObject({ message: expect.stringContaining('is in use by') as string })
    // Nor is what the opener wrote meanwhile taken for a claim of one that lives.
    expect(JSON.parse(fs.readFileSync(claim, 'utf8'))).toMatchObject({ released: true })
    expect(await connectInfo(dir)).toBeDefined()
    await owner.release()
  })

  test('another takes the number first: the opener looks again', async () => {
    const owner = await own(dir)
    const { show } = hidden(1)
    const link = fs.linkSync
    vi.spyOn(fs, 'linkSync').mockImplementationOnce((...args) => {
      show()
      link(...args)
    })
    await expect(own(dir)).rejects.toMatchObject({ message: expect.stringContaining('is in use by') as string })
    await owner.release()
  })

  test('another takes over, and sweeps the socket of the dead: the opener looks again', async () => {
    await (await winner()).kill()
    await (await own(dir)).release()
    const { show } = hidden(2)
    const read = fs.readFileSync
    vi.spyOn(fs, 'readFileSync').mockImplementation(((file: string, ...more: []) => {
      const text = read(file, ...more)
      if (String(file).endsWith('1.json')) {
        vi.mocked(fs.readFileSync).mockRestore()
        show()
      }
      return text
    }) as never)
    await (await own(dir)).release()
    expect(fs.readdirSync(path.join(dir, 'owner'))).toContain('claim-000000000003.json')
  })
})

test('an owner that cannot say that it is gone leaves its socket, by which everybody sees it', async () => {
  const owner = await own(dir)
  const room = path.join(dir, 'owner')
  const [socket] = fs.readdirSync(room).filter((each) => each.endsWith('.sock'))
  // As where the disk is full.
  fs.mkdirSync(path.join(room, `${socket}.draft`))
  await owner.release()
  expect(await connectInfo(dir)).toBeUndefined()
  await (await own(dir)).release()
})
