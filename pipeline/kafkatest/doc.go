// Package kafkatest gives tests, the demo and the benchmarks something real to run against: Apache Kafka brokers as
// processes of their own on loopback (Start), Java programs that write and read records (WriteJava, ReadJava),
// MirrorMaker 2 (StartMM2), logs in shapes that are hard to get (Holes, OldFormat, HangingTransaction, …), a TCP proxy that
// misbehaves on demand (Proxy), and in-process kfake clusters (NewFake).
//
// Brokers come from Maven artifacts (jars.go) and need Java 17 and Maven; Available says whether both are there, and
// Need turns their absence into a failure under CI=true and into one loud line elsewhere.
//
// Everything here follows httptest.Server: Start… returns something that runs, Stop or Close ends it. Child processes
// are ended by their pid, and by the kernel if the test binary dies first.
package kafkatest
