package kafkatest

import (
	"bytes"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Lies is how many ways Lie has.
const Lies = 6

// Lie changes an answer at a byte of it, in one of the ways that have broken clients: a length that is negative, enormous (also as a
// varint) or the least there is, and an end, with a frame that owns to it and with one that says more. The frame is copied.
func Lie(frame []byte, at, which int) []byte {
	frame, at = bytes.Clone(frame), at%len(frame)
	switch which % Lies {
	case 0:
		copy(frame[at:], []byte{0xff, 0xff, 0xff, 0xff})
	case 1:
		copy(frame[at:], []byte{0x7f, 0xff, 0xff, 0xff})
	case 2:
		copy(frame[at:], []byte{0x80, 0, 0, 0})
	case 3:
		copy(frame[at:], []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	case 4:
		frame = frame[:max(at, 4)]
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	case 5:
		frame = frame[:at]
	}
	return frame
}

// Answered says whether frame is a sound answer to x, and which: what cannot be told from the truth.
func Answered(x Exchange, frame []byte) (resp kmsg.Response, ok bool) {
	if len(frame) < 8 || !whole(frame) || int32(binary.BigEndian.Uint32(frame[4:])) != x.Corr {
		return nil, false
	}
	resp = kmsg.ResponseForKey(x.Key)
	resp.SetVersion(x.Version)
	body := frame[8:]
	if resp.IsFlexible() && x.Key != int16(kmsg.ApiVersions) { // KIP-511
		if len(body) == 0 || body[0] != 0 {
			return nil, false
		}
		body = body[1:]
	}
	return resp, resp.ReadFrom(body) == nil
}
