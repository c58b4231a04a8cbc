package main

import "testing"

func TestPrintACLs(t *testing.T) {
	p := newPair(t)
	code, stdout, stderr := kferry(t, "check", "--print-acls", "-c", p.file)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %q", code, stderr)
	}
	cfg, err := load(p.file)
	if err != nil {
		t.Fatal(err)
	}
	if stdout != showACLs(cfg) || stdout == "" {
		t.Errorf("got\n%s", stdout)
	}
	east, west := "'"+cfg.Clusters["east"].Bootstrap[0]+"'", "'"+cfg.Clusters["west"].Bootstrap[0]+"'"
	const who = " --add --allow-principal 'User:ANONYMOUS' --operation "
	want := "# on east, with --command-config FILE where the tool has to log in\n" +
		"kafka-acls.sh --bootstrap-server " + east + who + "Read --operation DescribeConfigs --topic '*'\n" +
		"kafka-acls.sh --bootstrap-server " + east + who + "Read --topic 'kferry-state.' --resource-pattern-type prefixed\n" +
		"# on west, with --command-config FILE where the tool has to log in\n" +
		"kafka-acls.sh --bootstrap-server " + west + who + "DescribeConfigs --cluster\n" +
		"kafka-acls.sh --bootstrap-server " + west + who + "Read --operation Write --operation Create --operation Alter --operation DescribeConfigs --topic 'east.' --resource-pattern-type prefixed\n" +
		"kafka-acls.sh --bootstrap-server " + west + who + "Read --operation Write --operation Create --operation DescribeConfigs --topic 'kferry-state.east.internal'\n"
	if stdout != want {
		t.Errorf("got\n%s\nwant\n%s", stdout, want)
	}
	if got := quote("it's"); got != `'it'\''s'` {
		t.Error(got)
	}
}
