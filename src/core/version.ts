/** This package's version, as workers register it. */
export const version = '0.1.0'
