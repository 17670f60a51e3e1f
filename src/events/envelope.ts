/** The envelope of an event: CloudEvents 1.0 in JSON. */

/** An event as handlers see it, and as it is stored. */
export interface CloudEvent<Data = unknown> {
  readonly specversion: '1.0'
  /** A UUIDv7. */
  readonly id: string
  /** Its emitter: `/services/<service>`, `/sluice` for a program without one, `/sql` for `sluice.emit`. */
  readonly source: string
  readonly type: string
  /** Its subject, if its emitter gave one. */
  readonly subject?: string
  /** When it was emitted, by its emitter's clock (ISO 8601). */
  readonly time: string
  readonly datacontenttype: 'application/json'
  /** The version of its payload's schema, if its emitter stated one. */
  readonly schemaversion?: number
  readonly data: Data
}

/** The input of the job that delivers an event to a handler. */
export interface Delivery {
  readonly service: string
  readonly handler: string
  readonly event: CloudEvent
  /** True: the handler may have had it before, as another job or message, or before it was replayed. */
  readonly again?: boolean
}
