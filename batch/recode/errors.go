package recode

import "errors"

// What Rewrite refuses, beside batch.ErrCRC. Each comes wrapped with what was found.
var (
	ErrCodec    = errors.New("compression not known")
	ErrRecords  = errors.New("records damaged") // their checksum is right: they were written so
	ErrDecoded  = errors.New("records larger than the limit for decoding")
	ErrTooLarge = errors.New("a single record is larger than a batch may be")
)
