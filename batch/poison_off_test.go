//go:build !race && !invariants

package batch

const poisons = false
