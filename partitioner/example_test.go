package partitioner_test

import (
	"fmt"

	"kferry/partitioner"
)

func ExampleFilter() {
	filter, err := partitioner.NewFilter([]string{"orders.*"}, []string{`.*[.]tmp`}, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, topic := range []string{"orders.eu", "orders.tmp", "payments"} {
		rule, ok, err := filter.Explain(topic)
		fmt.Println(topic, ok, "by", rule, err)
	}
	// Output:
	// orders.eu true by include orders.* <nil>
	// orders.tmp false by exclude .*[.]tmp <nil>
	// payments false by no include matches <nil>
}

func ExampleNamer() {
	namer := partitioner.NewNamer(partitioner.NamingConfig{Kind: partitioner.Prefix}, "east", "west", ".", []string{"east", "west"})
	fmt.Println(namer.Target("orders"))
	fmt.Println(namer.Target("west.orders")) // has been there
	fmt.Println(namer.Source("east.orders"))
	// Output:
	// east.orders true
	//  false
	// orders true
}

func ExampleMapper() {
	mapper, err := partitioner.NewMapper("orders", 3, 6)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mapper.Target(2))
	// Output: 2 true
}
