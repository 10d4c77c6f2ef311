package storage

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"svc.dev/svc/apis/resource"
)

// KindCodec returns the codec of stored objects, which encodes every kind as
// protobuf in the version of its hub, and the versioner of that encoding. Objects
// in memory have the same Go type, so nothing is converted.
func KindCodec(scheme *runtime.Scheme, kinds []*resource.Kind) (runtime.Codec, runtime.GroupVersioner) {
	hubs := hubVersioner{}
	for _, k := range kinds {
		for _, gvk := range k.GVKs() {
			hubs[gvk.GroupKind()] = k.Hub
			if list := k.NewList(); list != nil {
				hubs[schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind + "List"}] = k.Hub.GroupVersion().WithKind(k.Hub.Kind + "List")
			}
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	encoder := codecs.EncoderForVersion(protobuf.NewSerializer(scheme, scheme), hubs)
	decoder := codecs.DecoderToVersion(codecs.UniversalDeserializer(), runtime.InternalGroupVersioner)
	return runtime.NewCodec(encoder, untyped{decoder}), hubs
}

// untyped is a decoder that leaves apiVersion and kind empty, as they are for all
// objects in memory. The library sets them if it decodes into a given object.
type untyped struct{ runtime.Decoder }

// Decode implements runtime.Decoder.
func (d untyped) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, stored, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, stored, err
}

// hubVersioner selects the hub among all kinds that a Go type is registered as.
type hubVersioner map[schema.GroupKind]schema.GroupVersionKind

// KindForGroupVersionKinds implements runtime.GroupVersioner.
func (h hubVersioner) KindForGroupVersionKinds(kinds []schema.GroupVersionKind) (schema.GroupVersionKind, bool) {
	for _, kind := range kinds {
		if hub, ok := h[kind.GroupKind()]; ok {
			return hub, true
		}
	}
	return schema.GroupVersionKind{}, false
}

// Identifier implements runtime.GroupVersioner.
func (h hubVersioner) Identifier() string { return "hub" }
