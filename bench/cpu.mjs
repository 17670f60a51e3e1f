// CPU time and memory of processes with all their descendants, from Linux's /proc.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'

const hasProc = existsSync('/proc/self/stat')
const ticks = hasProc ? Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' })) : 100

/** Reads a process: its parent, and its CPU seconds with those of ended children; undefined if it has ended. */
function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name may contain spaces and brackets, so the fields are read after it.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    const used = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
    return { parent: Number(fields[1]), seconds: used / ticks }
  } catch {
    return undefined
  }
}

/** Returns these processes and all their descendants, by pid. */
function family(roots) {
  const all = new Map()
  for (const name of readdirSync('/proc')) {
    const stat = /^\d+$/.test(name) ? statOf(Number(name)) : undefined
    if (stat !== undefined) all.set(Number(name), stat)
  }
  const found = new Map()
  const visit = (pid) => {
    if (found.has(pid) || !all.has(pid)) return
    found.set(pid, all.get(pid).seconds)
    for (const [child, { parent }] of all) if (parent === pid) visit(child)
  }
  for (const pid of roots) visit(pid)
  return found
}

/**
 * CPU seconds used so far by these processes and their descendants; undefined where there is no /proc. A process that
 * ended is counted as long as its parent lives.
 */
export function cpuSeconds(pids) {
  if (!hasProc) return undefined
  return [...family(pids).values()].reduce((sum, seconds) => sum + seconds, 0)
}

/** Starts to measure CPU seconds of these processes; call the result for the CPU seconds of 1,000 jobs. */
export function cpuFrom(pids) {
  const from = cpuSeconds(pids)
  return (jobs) => (from === undefined ? undefined : ((cpuSeconds(pids) - from) / jobs) * 1000)
}

/** Returns the resident memory of a process, in MB; undefined if there is no /proc. */
export function residentMb(pid) {
  if (!hasProc) return undefined
  const kb = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kb) / 1024
}

/** Starts to measure how busy the machine is with other processes; call the result for the fraction of all CPUs. */
export function machineLoad() {
  const read = () => {
    const fields = readFileSync('/proc/stat', 'utf8').split('\n')[0].split(/\s+/).slice(1).map(Number)
    return { idle: fields[3] + fields[4], all: fields.slice(0, 8).reduce((a, b) => a + b, 0) }
  }
  if (!hasProc) return () => undefined
  const from = read()
  return () => {
    const to = read()
    return 1 - (to.idle - from.idle) / Math.max(to.all - from.all, 1)
  }
}
