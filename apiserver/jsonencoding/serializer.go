// Package jsonencoding owns the serializers of objects as JSON, which have the same
// results as the library's in less time.
//
// Most of the time of the library's encoder is for managed fields: they are JSON
// already, and encoding/json parses and copies them byte by byte. Here they are
// copied as they are. A third of the time of its decoder is for reading the whole
// document to find apiVersion and kind.
package jsonencoding

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Codecs is a codec factory with the JSON serializers of this package. The one for
// indented JSON is the library's.
type Codecs struct {
	serializer.CodecFactory
	infos []runtime.SerializerInfo
}

// New returns the factory with the package's serializers in place of its own. It
// must be a factory of the scheme.
func New(scheme *runtime.Scheme, factory serializer.CodecFactory) Codecs {
	buffers := &sync.Pool{New: func() any { return &bytes.Buffer{} }}
	infos := slices.Clone(factory.SupportedMediaTypes())
	for i, info := range infos {
		if info.MediaType != runtime.ContentTypeJSON {
			continue
		}
		infos[i].Serializer = fast{newQuick(info.Serializer, scheme, false), buffers}
		infos[i].StrictSerializer = newQuick(info.StrictSerializer, scheme, true)
		if info.StreamSerializer != nil {
			stream := *info.StreamSerializer
			stream.Serializer = fast{stream.Serializer, buffers}
			infos[i].StreamSerializer = &stream
		}
	}
	return Codecs{CodecFactory: factory, infos: infos}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c Codecs) SupportedMediaTypes() []runtime.SerializerInfo { return c.infos }

// fast is a serializer that encodes objects with managed fields, lists of objects
// and events of watches itself, and all others by the library.
type fast struct {
	runtime.Serializer
	buffers *sync.Pool // of *bytes.Buffer
}

// Identifier implements runtime.Encoder. All serializers of this type have the same
// results. It is short because it is part of the key of the cache of encoded
// events, which each watch compares for each event.
func (s fast) Identifier() runtime.Identifier { return "fast" }

// Encode implements runtime.Encoder.
func (s fast) Encode(obj runtime.Object, w io.Writer) error {
	if cached, ok := obj.(runtime.CacheableObject); ok {
		return cached.CacheEncode(s.Identifier(), s.encode, w)
	}
	return s.encode(obj, w)
}

func (s fast) encode(obj runtime.Object, w io.Writer) error {
	if event, ok := obj.(*metav1.WatchEvent); ok && event.Object.Object == nil && len(event.Object.Raw) > 0 {
		return s.encodeEvent(event, w)
	}
	if list, items, ok := asList(obj); ok {
		return s.encodeList(list, items, w)
	}
	if !hasManagedFields(obj) {
		return s.Serializer.Encode(obj, w)
	}
	buffer := s.buffers.Get().(*bytes.Buffer)
	defer s.release(buffer)
	if err := s.appendObject(buffer, obj); err != nil {
		return err
	}
	buffer.WriteByte('\n')
	_, err := w.Write(buffer.Bytes())
	return err
}

// encodeEvent writes an event of a watch whose object is encoded already.
func (s fast) encodeEvent(event *metav1.WatchEvent, w io.Writer) error {
	buffer := s.buffers.Get().(*bytes.Buffer)
	defer s.release(buffer)
	buffer.WriteString(`{"type":`)
	appendString(buffer, event.Type)
	buffer.WriteString(`,"object":`)
	buffer.Write(bytes.TrimSuffix(event.Object.Raw, []byte("\n")))
	buffer.WriteString("}\n")
	_, err := w.Write(buffer.Bytes())
	return err
}

// flushSize is the size from which the encoded items of a list are written. It is
// far above the size from which the server compresses responses.
const flushSize = 128 << 10

// encodeList writes a list item by item.
func (s fast) encodeList(list reflect.Value, items reflect.Value, w io.Writer) error {
	buffer := s.buffers.Get().(*bytes.Buffer)
	defer s.release(buffer)
	buffer.WriteByte('{')
	meta := list.Field(0).Interface().(metav1.TypeMeta)
	for _, member := range []struct{ name, value string }{{"kind", meta.Kind}, {"apiVersion", meta.APIVersion}} {
		if member.value != "" {
			buffer.WriteString(`"` + member.name + `":`)
			appendString(buffer, member.value)
			buffer.WriteByte(',')
		}
	}
	buffer.WriteString(`"metadata":`)
	if err := appendJSON(buffer, list.Field(1).Interface()); err != nil {
		return err
	}
	if items.IsNil() {
		buffer.WriteString(`,"items":null}` + "\n")
		_, err := w.Write(buffer.Bytes())
		return err
	}
	buffer.WriteString(`,"items":[`)
	for i := range items.Len() {
		if i > 0 {
			buffer.WriteByte(',')
		}
		if err := s.appendObject(buffer, items.Index(i).Addr().Interface().(runtime.Object)); err != nil {
			return err
		}
		if buffer.Len() > flushSize {
			if _, err := w.Write(buffer.Bytes()); err != nil {
				return err
			}
			buffer.Reset()
		}
	}
	buffer.WriteString("]}\n")
	_, err := w.Write(buffer.Bytes())
	return err
}

// asList reports whether obj is a list of typed objects with metadata: a struct of
// TypeMeta, ListMeta and Items, without an encoding of its own.
func asList(obj runtime.Object) (list, items reflect.Value, ok bool) {
	if _, ok := obj.(metav1.ListInterface); !ok {
		return list, items, false
	}
	if _, ok := obj.(json.Marshaler); ok {
		return list, items, false
	}
	list = reflect.ValueOf(obj)
	if list.Kind() != reflect.Pointer || list.IsNil() || list.Elem().Kind() != reflect.Struct || list.Elem().NumField() != 3 {
		return list, items, false
	}
	list = list.Elem()
	if list.Type().Field(0).Type != reflect.TypeFor[metav1.TypeMeta]() || list.Type().Field(1).Type != reflect.TypeFor[metav1.ListMeta]() {
		return list, items, false
	}
	items = list.Field(2)
	if items.Kind() != reflect.Slice || list.Type().Field(2).Tag.Get("json") != "items" ||
		items.Type().Elem().Kind() != reflect.Struct || !reflect.PointerTo(items.Type().Elem()).Implements(reflect.TypeFor[metav1.Object]()) {
		return list, items, false
	}
	return list, items, reflect.PointerTo(items.Type().Elem()).Implements(reflect.TypeFor[runtime.Object]())
}

// release keeps a buffer for the next caller, unless it has grown large.
func (s fast) release(buffer *bytes.Buffer) {
	if buffer.Cap() <= 2*flushSize {
		buffer.Reset()
		s.buffers.Put(buffer)
	}
}

// appendJSON writes a value without the encoder's newline.
func appendJSON(buffer *bytes.Buffer, value any) error {
	if err := json.NewEncoder(buffer).Encode(value); err != nil {
		return err
	}
	buffer.Truncate(buffer.Len() - 1)
	return nil
}
