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

// TestScripts plays the scripts in testdata. The output of a command is the actions
// of the subjects that are ready after it, numbered. The commands:
//
//	serve KIND [cluster] [unwatched]   adds a kind, written "Kind.group"
//	failing KIND                       a kind cannot be listed
//	unserve KIND                       removes a kind
//	list KIND / OBJECT / ...           a list, one object in each continuation line
//	observe KIND OBJECT                a watch delivers an object
//	deleted UID                        a watch delivers the deletion of an object
//	invalidate                         invalidates lookups
//	result NUMBER OUTCOME [OBJECT]     the result of an action
//
// An object is "[namespace/]name uid version [owner=Kind.group/name/uid[!]]...
// [finalizer=name]... [deleting]"; "!" sets blockOwnerDeletion.
func TestScripts(t *testing.T) {
	golden.Run(t, newPlayer)
}

// newPlayer returns a handler with a graph of its own.
func newPlayer(t *testing.T) golden.Handler {
	p := player{t: t, g: New(), inFlight: map[Subject]bool{}}
	return func(c golden.Command) string {
		lines := p.step(c)
		if len(lines) == 0 && c.Name != "serve" {
			return "nothing"
		}
		return strings.Join(lines, "\n")
	}
}

// player executes scripts in place of the reconciler.
type player struct {
	t        *testing.T
	g        *Graph
	actions  []Action
	of       []Subject
	inFlight map[Subject]bool
	held     []Subject // subjects that got ready while in flight, or are requeued
}

func (p *player) step(c golden.Command) []string {
	p.t.Helper()
	var said []string
	switch c.Name {
	case "serve":
		p.g.Serve(kindOf(c.Args[0]), !slices.Contains(c.Args, "cluster"), !slices.Contains(c.Args, "unwatched"))
	case "failing":
		p.g.Failing(kindOf(c.Args[0]))
	case "unserve":
		p.g.RemoveKind(kindOf(c.Args[0]))
	case "list":
		var objects []Object
		for _, line := range strings.Split(c.Body, "\n") {
			if words := strings.Fields(line); len(words) > 0 {
				objects = append(objects, p.object(words))
			}
		}
		p.g.Replace(kindOf(c.Args[0]), objects)
	case "observe":
		p.g.Observe(kindOf(c.Args[0]), p.object(c.Args[1:]))
	case "deleted":
		p.g.Deleted(types.UID(c.Args[0]))
	case "invalidate":
		p.g.InvalidateLookups()
	case "result":
		said = p.result(c.Args)
	default:
		p.t.Fatalf("Unknown command %q", c.Name)
	}
	return append(said, p.start()...)
}

func (p *player) result(words []string) []string {
	p.t.Helper()
	i, err := strconv.Atoi(words[0])
	if err != nil || i < 1 || i > len(p.actions) || !p.inFlight[p.of[i-1]] {
		p.t.Fatalf("Action %s is not in flight", words[0])
	}
	outcomes := map[string]Outcome{"failed": Failed, "done": Done, "present": Present, "absent": Absent, "conflict": Conflict}
	outcome, ok := outcomes[words[1]]
	if !ok {
		p.t.Fatalf("Unknown word %q", words[1])
	}
	r := Result{Outcome: outcome}
	if outcome == Present {
		r.Object = p.object(words[2:])
	}
	s := p.of[i-1]
	delete(p.inFlight, s)
	switch p.g.Complete(s, p.actions[i-1], r) {
	case RequeueNow:
		p.held = append(p.held, s)
	case RequeueWithBackoff:
		p.held = append(p.held, s)
		return []string{"requeue with backoff:"}
	}
	return nil
}

// start starts the actions of ready subjects.
func (p *player) start() []string {
	var said []string
	for _, n := range p.g.Notices() {
		said = append(said, fmt.Sprintf("notice: %s refers to %s in another namespace", n.Object, n.Owner))
	}
	ready := append(p.held, p.g.Ready()...)
	p.held = nil
	for len(ready) > 0 {
		s := ready[0]
		ready = ready[1:]
		if p.inFlight[s] {
			p.held = append(p.held, s)
			continue
		}
		if a := p.g.Next(s); a.Verb != Nothing {
			p.inFlight[s] = true
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
		p.t.Fatalf("Invalid object: %q", words)
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
			p.t.Fatalf("Unknown word %q", word)
		}
	}
	return o
}
