/** The result of a check of the store, for `sluice doctor` and the alarms of `sluice status`. */
export interface Finding {
  status: 'ok' | 'warn' | 'fail'
  text: string
}
