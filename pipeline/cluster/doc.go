// Package cluster is one side of a link: who its brokers are, how they are reached, and how their answers are judged.
//
// There are two ways to a broker. Client and Admin (franz-go) carry everything whose order and cost do not matter: metadata,
// topics, configs, groups, producer ids. Conn carries Fetch and Produce: one TCP (or TLS) connection, written by one goroutine
// and read by another, many requests in flight, answered in order, each answer in one counted buffer.
//
// The duties of a Conn's owner:
//
//  1. Write from one goroutine, Read from one goroutine. They may be the same one.
//  2. Release the Buf of every Response.
//  3. Never put Fetch and Produce on one connection: a broker answers strictly in turn, so a long poll holds up what is behind it.
//  4. After the first error of Read or Write the connection is dead: all that was in flight is in doubt. Call Close or Reset (for
//     Produce always Reset: after a FIN a broker still appends what it has read), and dial again after Backoff.
//  5. Reconnect before Expires, where the broker limits a SASL session (KIP-368).
package cluster
