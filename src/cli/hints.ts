/** The words of other systems, and the commands that they stand for here. */
import type { Command } from 'commander'
import { nearest } from '../core/nearest.ts'

const words: [readonly string[], string][] = [
  [['enqueue', 'add', 'push', 'publish', 'submit', 'call', 'delay', 'trigger', 'perform', 'create', 'new'], 'send'],
  [['list', 'ls', 'queue', 'tail', 'runs', 'calls', 'find', 'search', 'query'], 'jobs'],
  [['inspect', 'show', 'get', 'describe', 'job', 'result', 'report'], 'jobs show <id>'],
  [['ps', 'top', 'stats', 'stat', 'info', 'queues', 'monitor', 'size', 'count'], 'status'],
  [['workers', 'members', 'processes'], 'status --members'],
  [['worker', 'start', 'run', 'serve', 'consume', 'listen', 'process'], 'work'],
  [['once', 'drain', 'cron', 'tick'], 'dispatch --once'],
  [['purge', 'flush', 'clear', 'delete', 'remove', 'rm', 'kill', 'revoke', 'abort', 'discard', 'stop'], 'cancel'],
  [['requeue', 'replay', 'redrive', 'rerun', 'again', 'resurrect'], 'retry'],
  [['priority', 'prioritise', 'prioritize', 'reorder'], 'reprioritise'],
  [['explain', 'reason', 'blocked'], 'why'],
  [['unpause', 'continue'], 'resume'],
  [['hold', 'suspend', 'freeze'], 'pause'],
  [['rate', 'rates', 'limit', 'throttle', 'ratelimit', 'buckets', 'quota'], 'limits'],
  [['schedule', 'crons', 'beat', 'periodic', 'recurring'], 'schedules'],
  [['registered', 'task', 'handlers', 'functions', 'types'], 'tasks'],
  [['check', 'health', 'ping', 'diagnose'], 'doctor'],
  [['proof', 'prove', 'audit'], 'verify'],
  [['setup', 'install', 'scaffold'], 'init'],
  [['cleanup', 'clean', 'gc', 'vacuum', 'archive'], 'prune'],
  [['upgrade', 'migrations', 'schema'], 'migrate'],
  [['completions', 'autocomplete'], 'completion'],
  [['export', 'dump'], 'jobs export'],
]

/** Returns the command that is meant by an unknown one; undefined: nothing is like it. */
export function meant(word: string, program: Command): string | undefined {
  const known = words.find(([others]) => others.includes(word.toLowerCase()))?.[1]
  if (known !== undefined) return known
  return nearest(
    word,
    program.commands.flatMap((command) => [command.name(), ...command.aliases()]),
  )
}

/** Flags that are called otherwise here. */
const flags: Record<string, string> = {
  '--limit': '--max <n> is how many to list',
  '--to': '--priority <n>, or --until <time>',
  '--count': '--max <n> is how many to list',
  '--n': '--max <n> is how many to list',
  '--force': '--yes confirms',
  '--payload': 'the input is an argument: sluice send <task> \'{"field":1}\'',
  '--data': 'the input is an argument: sluice send <task> \'{"field":1}\'',
  '--args': 'the input is an argument: sluice send <task> \'{"field":1}\'',
  '--eta': '--at <time>, or --delay <span>',
  '--countdown': '--delay <span>',
  '--status': '--state <state>',
  '--database-url': '--store <store>',
  '--db': '--store <store>',
  '--name': '--task <name>',
  '--from': '--since <time>',
  '--handler': '--input handler=<name>',
}

const names = '--queue, --task, or --limit and --key, name what is meant'
/** Commands that take by options what people give as an argument. */
const options: Record<string, string> = {
  set: 'the numbers are options: --rate 50/min',
  pin: 'the numbers are options: --rate 50/min',
  pause: names,
  resume: names,
  verify: '--limit <name> names a limit',
}

/** Returns by which options a command takes an argument; undefined: it takes no such thing. */
export function meantOptions(command: string): string | undefined {
  return options[command]
}

/** Returns what an unknown flag is called; undefined: commander's own suggestion has to do. */
export function meantFlag(flag: string): string | undefined {
  return flags[flag]
}
