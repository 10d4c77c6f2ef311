package apiserver

import (
	"maps"
	"reflect"
	"sync"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// specs lets the states of an object share their specification, as long as it does
// not change. T is the type of the object, S that of its specification. The objects must
// be immutable: those of watch caches and informers are.
type specs[T, S any] struct {
	spec func(*T) *S

	mu   sync.Mutex
	last map[types.UID]weak.Pointer[T]
}

func newSpecs[T, S any](spec func(*T) *S) *specs[T, S] {
	return &specs[T, S]{spec: spec, last: map[types.UID]weak.Pointer[T]{}}
}

// share replaces the specification of a decoded object by that of the last state of
// the object, if they are equal and the last state is still in memory.
func (s *specs[T, S]) share(uid types.UID, obj *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.last[uid]
	if before := last.Value(); before != nil && before != obj {
		if shared := s.spec(before); reflect.DeepEqual(shared, s.spec(obj)) {
			*s.spec(obj) = *shared
		}
	}
	if !known {
		maps.DeleteFunc(s.last, func(_ types.UID, p weak.Pointer[T]) bool { return p.Value() == nil })
	}
	s.last[uid] = weak.Make(obj)
}

// definitionCodec is the codec of stored CustomResourceDefinitions. The states of a
// definition in the history of the watch cache, at least five from its creation until it is
// established, share its specification.
type definitionCodec struct {
	runtime.Codec
	specs *specs[apiextensions.CustomResourceDefinition, apiextensions.CustomResourceDefinitionSpec]
}

func newDefinitionCodec(codec runtime.Codec) definitionCodec {
	return definitionCodec{codec, newSpecs(func(crd *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinitionSpec {
		return &crd.Spec
	})}
}

// Decode implements runtime.Decoder. The store decodes the objects of events, and no
// others, without an object to decode into. Others may be changed before they are
// stored again.
func (c definitionCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if crd, ok := obj.(*apiextensions.CustomResourceDefinition); ok && err == nil && into == nil {
		c.specs.share(crd.UID, crd)
	}
	return obj, kind, err
}
