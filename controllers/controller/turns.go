package controller

import (
	"fmt"

	"k8s.io/client-go/util/workqueue"
)

// Namespaced is a request about an object in a namespace.
type Namespaced interface {
	// Namespace is empty for an object without one.
	Namespace() string
}

// orderOf returns the order of the queue that the options ask for; nil is first in,
// first out.
func orderOf[Request comparable](o Options) (workqueue.Queue[Request], error) {
	if !o.NamespacesInTurn {
		return nil, nil
	}
	var request Request
	if _, ok := any(request).(Namespaced); !ok {
		return nil, fmt.Errorf("requests of type %T have no namespace to be served in turn", request)
	}
	return &namespacesInTurn[Request]{waiting: map[string][]Request{}}, nil
}

// namespacesInTurn is a workqueue.Queue that serves namespaces in turn.
type namespacesInTurn[Request comparable] struct {
	// waiting are the requests of each namespace, first in, first out.
	waiting map[string][]Request
	// next are the namespaces with requests, in the order in which they are served.
	next  []string
	count int
}

// Touch implements workqueue.Queue.
func (t *namespacesInTurn[Request]) Touch(Request) {}

// Push implements workqueue.Queue.
func (t *namespacesInTurn[Request]) Push(request Request) {
	namespace := any(request).(Namespaced).Namespace()
	if len(t.waiting[namespace]) == 0 {
		t.next = append(t.next, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], request)
	t.count++
}

// Len implements workqueue.Queue.
func (t *namespacesInTurn[Request]) Len() int { return t.count }

// Pop implements workqueue.Queue. The queue must not be empty.
func (t *namespacesInTurn[Request]) Pop() Request {
	namespace := t.next[0]
	t.next = t.next[1:]
	requests := t.waiting[namespace]
	request := requests[0]
	var none Request
	requests[0] = none
	t.count--
	if len(requests) == 1 {
		delete(t.waiting, namespace)
		return request
	}
	t.waiting[namespace] = requests[1:]
	t.next = append(t.next, namespace)
	return request
}
