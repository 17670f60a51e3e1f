/** The result of a check of the store, for `sluice doctor` and the problems in `sluice status`. */
export interface Finding {
  status: 'ok' | 'warn' | 'fail'
  text: string
}

/** Makes the finding that all is well. */
export const ok = (text: string): Finding => ({ status: 'ok', text })

/** Makes a finding that somebody should look at. */
export const warn = (text: string): Finding => ({ status: 'warn', text })

/** Makes a finding that fails `sluice doctor`. */
export const fail = (text: string): Finding => ({ status: 'fail', text })
