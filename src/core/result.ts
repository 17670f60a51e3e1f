/** The type of a task's result, on its way from `send` to the record of the job. */

/**
 * The id of a job, with the type of what its task returns: `waitFor` and `jobs.get` read the result as that. To JavaScript it is a
 * text, and any text may be given for one; its result is then `unknown`.
 */
export type JobId<Result = unknown> = string & { readonly '~result'?: Result }

/** The type of the result that an id carries; of a mere text: unknown. */
export type ResultOf<Id extends string> = Id extends JobId<infer Result> ? Result : never

/**
 * A value as JSON keeps it: a Date becomes a text; `undefined` becomes null, and in an object nothing. A response that a handler
 * returns is checked, and not kept.
 */
export type Stored<Value> = Value extends string | number | boolean | null
  ? Value
  : Value extends undefined | void | Response
    ? null
    : Value extends { toJSON(): infer Json }
      ? Stored<Json>
      : Value extends readonly unknown[]
        ? { [Item in keyof Value]: Stored<Value[Item]> }
        : Value extends object
          ? { [Field in keyof Value]: Stored<Exclude<Value[Field], undefined>> | Extract<Value[Field], undefined> }
          : Value
