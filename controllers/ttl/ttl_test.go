package ttl

import "testing"

func TestTheStepFollowsTheNumberOfNodes(t *testing.T) {
	step := 0
	for _, test := range []struct{ nodes, seconds int }{
		{1, 0}, {100, 0}, {101, 15}, {95, 15}, {89, 0}, {600, 30}, {460, 30}, {449, 15}, {2500, 300}, {1799, 60}, {10, 0},
	} {
		if step = next(step, test.nodes); boundaries()[step].seconds != test.seconds {
			t.Errorf("%d nodes: %d seconds, want %d", test.nodes, boundaries()[step].seconds, test.seconds)
		}
	}
}
