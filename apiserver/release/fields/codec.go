package fields

import (
	"fmt"
	"io"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Codecs returns the serializers with decoders that remove the fields which the release
// lacks from the objects of creates and updates. Strict ones say so in their error, with
// the other unknown fields; those of protobuf, which know no unknown fields, do not.
func (f *Fields) Codecs(codecs runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	if f == nil {
		return codecs
	}
	infos := append([]runtime.SerializerInfo{}, codecs.SupportedMediaTypes()...)
	for i, info := range infos {
		infos[i].Serializer = f.decoding(info.Serializer, false)
		infos[i].StrictSerializer = f.decoding(info.StrictSerializer, info.MediaType != runtime.ContentTypeProtobuf)
	}
	return negotiated{codecs, infos}
}

type negotiated struct {
	runtime.NegotiatedSerializer
	infos []runtime.SerializerInfo
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo { return n.infos }

func (f *Fields) decoding(s runtime.Serializer, report bool) runtime.Serializer {
	d := decoding{s, f, report}
	if e, ok := s.(runtime.EncoderWithAllocator); ok {
		return allocating{d, e}
	}
	return d
}

type decoding struct {
	runtime.Serializer
	fields *Fields
	report bool
}

// allocating is a decoding whose encoder takes an allocator.
type allocating struct {
	decoding
	encoder runtime.EncoderWithAllocator
}

// EncodeWithAllocator implements runtime.EncoderWithAllocator.
func (a allocating) EncodeWithAllocator(obj runtime.Object, w io.Writer, memory runtime.MemoryAllocator) error {
	return a.encoder.EncodeWithAllocator(obj, w, memory)
}

// Decode implements runtime.Decoder.
//
// Patches are decoded without a default kind: what they leave of the object as it is
// stored may have any field, and what they set was checked before (package bodycheck).
func (d decoding) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Serializer.Decode(data, defaults, into)
	if defaults == nil || gvk == nil || obj == nil || err != nil && !runtime.IsStrictDecodingError(err) {
		return obj, gvk, err
	}
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return obj, gvk, err
	}
	n := d.fields.Of(*gvk, v.Type().Elem())
	if n == nil {
		return obj, gvk, err
	}
	if found := n.prune(v.Elem(), nil, keepNone); len(found) > 0 && d.report {
		err = addUnknown(err, found)
	}
	return obj, gvk, err
}

// addUnknown adds texts of unknown fields to a strict decoding error, which may be nil.
func addUnknown(err error, found []string) error {
	var all []error
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		all = append(all, strict.Errors()...)
	}
	for _, text := range found {
		all = append(all, fmt.Errorf("%s", text))
	}
	return runtime.NewStrictDecodingError(all)
}
