package jsonencoding

import (
	"encoding/binary"
	"io"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apiserver/itemcache"
)

// allocatingSerializer is what the library's serializer of protobuf implements.
type allocatingSerializer interface {
	runtime.Serializer
	runtime.EncoderWithAllocator
}

// cachedProtobuf is a serializer that encodes lists with a cache, and all other objects
// by the library.
type cachedProtobuf struct {
	allocatingSerializer
	items *itemcache.Cache
}

// Encode implements runtime.Encoder.
func (s cachedProtobuf) Encode(obj runtime.Object, w io.Writer) error {
	if done, err := s.encodeList(obj, w); done {
		return err
	}
	return s.allocatingSerializer.Encode(obj, w)
}

// EncodeWithAllocator implements runtime.EncoderWithAllocator.
func (s cachedProtobuf) EncodeWithAllocator(obj runtime.Object, w io.Writer, memory runtime.MemoryAllocator) error {
	if done, err := s.encodeList(obj, w); done {
		return err
	}
	return s.allocatingSerializer.EncodeWithAllocator(obj, w, memory)
}

// The prefix of objects as protobuf (document 1, section 2), and the keys of the fields
// of a list: 1 is its metadata, 2 an item (https://protobuf.dev/programming-guides/encoding/).
const (
	envelopePrefix = "k8s\x00"
	metadataKey    = 1<<3 | 2
	itemKey        = 2<<3 | 2
)

// encodeList writes a list. It reports false for what the library has to encode.
func (s cachedProtobuf) encodeList(obj runtime.Object, w io.Writer) (done bool, err error) {
	list, items, ok := asList(obj)
	if !ok || items.IsNil() || !hasProtobufTags(list.Type()) ||
		!reflect.PointerTo(items.Type().Elem()).Implements(reflect.TypeFor[runtime.ProtobufReverseMarshaller]()) ||
		!reflect.PointerTo(items.Type().Elem()).Implements(reflect.TypeFor[runtime.ProtobufMarshaller]()) {
		return false, nil
	}
	kind := list.Field(0).Interface().(metav1.TypeMeta)
	cached := s.items.List(itemcache.Class{Type: items.Type(), APIVersion: kind.APIVersion, MediaType: runtime.ContentTypeProtobuf})
	e := newProtobufList(list.Field(1).Interface().(metav1.ListMeta), items, cached)
	if _, err := io.WriteString(w, envelopePrefix); err != nil {
		return true, err
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: kind.Kind, APIVersion: kind.GroupVersionKind().GroupVersion().String()}}
	_, err = envelope.MarshalToWriter(w, e.size, e.write)
	return true, err
}

// hasProtobufTags reports whether the fields of a list, of which asList has checked the
// types, have the numbers that are written here.
func hasProtobufTags(list reflect.Type) bool {
	for i, tag := range []string{"", "bytes,1,opt,name=metadata", "bytes,2,rep,name=items"} {
		if list.Field(i).Tag.Get("protobuf") != tag {
			return false
		}
	}
	return true
}

// protobufList is a list that is being written: its size precedes it.
type protobufList struct {
	meta   metav1.ListMeta
	items  []metav1.Object
	found  []itemcache.Found
	sizes  []int
	size   int
	cached *itemcache.List
}

func newProtobufList(meta metav1.ListMeta, items reflect.Value, cached *itemcache.List) *protobufList {
	e := &protobufList{meta: meta, cached: cached, found: make([]itemcache.Found, items.Len()), sizes: make([]int, items.Len())}
	for from := 0; from < items.Len(); from += chunkSize {
		chunk := chunkOf(items, from)
		cached.Find(chunk, e.found[from:from+len(chunk)])
		e.items = append(e.items, chunk...)
	}
	e.size = fieldSize(meta.Size())
	for i, item := range e.items {
		e.sizes[i] = len(e.found[i].Data)
		if e.found[i].Data == nil {
			e.sizes[i] = item.(runtime.ProtobufMarshaller).Size()
		}
		e.size += fieldSize(e.sizes[i])
	}
	return e
}

// fieldSize returns the bytes of a field with a value of n bytes.
func fieldSize(n int) int {
	var length [binary.MaxVarintLen64]byte
	return 1 + binary.PutUvarint(length[:], uint64(n)) + n //nolint:gosec // a length
}

// write writes the fields of the list and returns their size.
func (e *protobufList) write(w io.Writer) (int, error) {
	metadata, err := e.meta.Marshal()
	if err != nil {
		return 0, err
	}
	buffer := appendField(make([]byte, 0, min(e.size, pooledSize)), metadataKey, metadata)
	e.cached.Head(len(buffer))
	written := 0
	var scratch []byte
	for i, item := range e.items {
		data := e.found[i].Data
		if data == nil {
			if cap(scratch) < e.sizes[i] {
				scratch = make([]byte, 2*e.sizes[i])
			}
			data = scratch[:e.sizes[i]]
			n, err := item.(runtime.ProtobufReverseMarshaller).MarshalToSizedBuffer(data)
			if err != nil {
				return written, err
			}
			data = data[len(data)-n:]
			e.cached.Keep(item, data)
		}
		buffer = appendField(buffer, itemKey, data)
		e.cached.Add(e.found[i])
		if e.cached.Ends(item, len(buffer)) {
			n, err := e.cached.Write(w, buffer)
			written += n
			if err != nil {
				return written, err
			}
			buffer = buffer[:0]
		}
	}
	n, err := e.cached.End(w, buffer, 0)
	return written + n, err
}

func appendField(buffer []byte, key byte, value []byte) []byte {
	buffer = binary.AppendUvarint(append(buffer, key), uint64(len(value)))
	return append(buffer, value...)
}
