//go:build !race && !invariants

package batch

const poisoned = false
