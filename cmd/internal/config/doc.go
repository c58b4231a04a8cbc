// Package config turns a configuration file into a pipeline.Config and back: YAML, ${env:NAME} and ${file:PATH} in any text,
// sizes, durations, times. It reports everything that is wrong with a file at once, each with file, line and column, and
// never the text of a secret.
//
// The file is walked as a syntax tree: a decoder into structs would stop at the first error and quote the lines around it.
package config
