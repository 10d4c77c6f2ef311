package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/internal/golden"
)

// TestScripts plays the scripts in testdata. A script is a list of steps, each
// with what the graph wants done after it; "-- nothing" is nothing.
//
//	serve KIND [cluster] [unwatched]   serve a kind; listed kinds are "Kind.group"
//	failing KIND                       it cannot be listed
//	vanish KIND                        it is not served any more
//	list KIND / OBJECT / ...           a list, an object in each further line
//	see KIND OBJECT                    a watch saw it
//	gone UID                           a watch saw it go
//	doubt                              watches broke
//	answer NUMBER OUTCOME [OBJECT]     how an action went
//
// An object is "[namespace/]name uid version [owner=Kind.group/name/uid[!]]...
// [finalizer=name]... [deleting]"; "!" blocks the owner's deletion.
func TestScripts(t *testing.T) {
	golden.Run(t, newPlayer)
}

// newPlayer returns a handler with a graph of its own.
func newPlayer(t *testing.T) golden.Handler {
	p := player{t: t, g: New(), busy: map[Subject]bool{}}
	return func(c golden.Command) string {
		lines := p.step(c)
		if len(lines) == 0 && c.Name != "serve" {
			return "nothing"
		}
		return strings.Join(lines, "\n")
	}
}

// player does what the collector does around the graph.
type player struct {
	t       *testing.T
	g       *Graph
	actions []Action
	of      []Subject
	busy    map[Subject]bool
	held    []Subject // ready while busy
}

func (p *player) step(c golden.Command) []string {
	p.t.Helper()
	var said []string
	switch c.Name {
	case "serve":
		p.g.Serve(kindOf(c.Args[0]), !slices.Contains(c.Args, "cluster"), !slices.Contains(c.Args, "unwatched"))
	case "failing":
		p.g.Failing(kindOf(c.Args[0]))
	case "vanish":
		p.g.RemoveKind(kindOf(c.Args[0]))
	case "list":
		var objects []Object
		for _, line := range strings.Split(c.Body, "\n") {
			if words := strings.Fields(line); len(words) > 0 {
				objects = append(objects, p.object(words))
			}
		}
		p.g.Replace(kindOf(c.Args[0]), objects)
	case "see":
		p.g.Observe(kindOf(c.Args[0]), p.object(c.Args[1:]))
	case "gone":
		p.g.Deleted(types.UID(c.Args[0]))
	case "doubt":
		p.g.InvalidateLookups()
	case "answer":
		said = p.answer(c.Args)
	default:
		p.t.Fatalf("Unknown command %q", c.Name)
	}
	return append(said, p.settle()...)
}

func (p *player) answer(words []string) []string {
	p.t.Helper()
	i, err := strconv.Atoi(words[0])
	if err != nil || i < 1 || i > len(p.actions) || !p.busy[p.of[i-1]] {
		p.t.Fatalf("no action %s is to be answered", words[0])
	}
	outcomes := map[string]Outcome{"failed": Failed, "done": Done, "present": Present, "absent": Absent, "conflict": Conflict}
	outcome, ok := outcomes[words[1]]
	if !ok {
		p.t.Fatalf("what is %q?", words[1])
	}
	r := Result{Outcome: outcome}
	if outcome == Present {
		r.Object = p.object(words[2:])
	}
	s := p.of[i-1]
	delete(p.busy, s)
	if p.g.Complete(s, p.actions[i-1], r) == Backoff {
		p.held = append(p.held, s)
		return []string{"again later:"}
	}
	return nil
}

// settle starts what is ready.
func (p *player) settle() []string {
	var said []string
	for _, n := range p.g.Notices() {
		said = append(said, fmt.Sprintf("tell %s that there is no %s", n.Object, n.Owner))
	}
	ready := append(p.held, p.g.Ready()...)
	p.held = nil
	for len(ready) > 0 {
		s := ready[0]
		ready = ready[1:]
		if p.busy[s] {
			p.held = append(p.held, s)
			continue
		}
		if a := p.g.Next(s); a.Verb != Nothing {
			p.busy[s] = true
			p.actions, p.of = append(p.actions, a), append(p.of, s)
			said = append(said, fmt.Sprintf("%d: %s", len(p.actions), a))
		}
		ready = append(ready, p.g.Ready()...)
	}
	return said
}

func kindOf(s string) schema.GroupKind { return schema.ParseGroupKind(s) }

func (p *player) object(words []string) Object {
	p.t.Helper()
	if len(words) < 3 {
		p.t.Fatalf("no object: %q", words)
	}
	o := Object{Name: words[0], UID: types.UID(words[1])}
	if ns, name, ok := strings.Cut(words[0], "/"); ok {
		o.Namespace, o.Name = ns, name
	}
	version, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	o.Version = version
	for _, word := range words[3:] {
		what, value, _ := strings.Cut(word, "=")
		switch what {
		case "owner":
			value, block := strings.CutSuffix(value, "!")
			parts := strings.Split(value, "/")
			kind := kindOf(parts[0])
			ref := metav1.OwnerReference{APIVersion: kind.WithVersion("v1").GroupVersion().String(), Kind: kind.Kind, Name: parts[1], UID: types.UID(parts[2])}
			if block {
				ref.BlockOwnerDeletion = &block
			}
			o.Owners = append(o.Owners, ref)
		case "finalizer":
			o.Finalizers = append(o.Finalizers, value)
		case "deleting":
			o.Deleting = true
		default:
			p.t.Fatalf("what is %q?", word)
		}
	}
	return o
}
