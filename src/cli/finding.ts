/** The result of a check of the store, for `sluice doctor` and the problems in `sluice status`. */
export interface Finding {
  status: 'ok' | 'warn' | 'fail'
  text: string
}
