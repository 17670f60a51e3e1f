/** The parts that URLs of servers have in common: encoded text, hosts with ports, and files of certificates. */
import { readFileSync } from 'node:fs'
import type { UsageError } from './errors.ts'
import { textOfError } from './errors.ts'

/** Makes the error of one kind of URL, from the reason. */
export type BadUrl = (why: string) => UsageError

/** One server. */
export interface Host {
  host: string
  port: number
}

/** PEM texts for TLS; without `ca` the machine's authorities are believed. */
export interface Pems {
  ca?: string
  cert?: string
  key?: string
}

const files = ['ca', 'cert', 'key'] as const

/** Decodes a part of a URL. @throws UsageError by `bad` */
export function decodedPart(part: string, bad: BadUrl): string {
  try {
    return decodeURIComponent(part)
  } catch {
    throw bad('its user, password or path is not encoded as URLs are')
  }
}

/** Reads `host[:port],…`; an IPv6 address stands in brackets. @param usual the port of hosts that have none @throws UsageError by `bad` */
export function hostsOf(list: string, usual: number, bad: BadUrl): Host[] {
  return list.split(',').map((one) => {
    const [, host = '', port] = /^(\[[^\]]+\]|[^:]*)(?::(\d{1,5}))?$/.exec(one) ?? []
    if (host === '' || Number(port ?? 1) > 65_535)
      throw bad('a host in it is empty, or its port is no number up to 65535')
    return { host: host.replace(/^\[|\]$/g, ''), port: Number(port ?? usual) }
  })
}

/** Reads the PEM files that the options `ca`, `cert` and `key` name. @throws UsageError by `bad` */
export function pemsOf(options: URLSearchParams, bad: BadUrl): Pems {
  const pems: Pems = {}
  for (const name of files) {
    const path = options.get(name)
    if (path === null) continue
    try {
      pems[name] = readFileSync(path, 'utf8')
    } catch (error) {
      throw bad(`the file of its ${name} cannot be read: ${textOfError(error)}`)
    }
  }
  return pems
}
