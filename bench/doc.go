// Package bench measures kferry against what it has to beat, in processes of their own: a plain TCP relay (the limit), a kgo
// consume-produce loop and MirrorMaker 2.
//
// Every figure is CPU time of one whole process, user and system, from its start to its end, divided by what the target
// counted. The ends (a synthetic source, a discarding target) are real protocol in other processes, so their cost is not in the
// figure; they can only slow a run down. Subject and rival are run in turns, and a ratio is always of medians of one session.
//
//	source process ──► process under test ──► target process
//	 Fetch from a       kferry run, relay,     Produce: CRC and sequence checked, counted, discarded
//	 pinned ring        kgo loop
package bench
