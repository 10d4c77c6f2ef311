package storage

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"svc.dev/svc/apis/resource"
)

// KindCodec encodes the kinds as they are stored: every kind in the version of
// its hub, as protobuf. Memory holds the same Go type, so that nothing is
// converted on the way. The second result says which version that is.
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
	return runtime.NewCodec(encoder, typeless{decoder}), hubs
}

// typeless leaves the apiVersion and kind of what it reads empty, as they are
// of everything in memory. The library does so unless it reads into a given
// object, which it takes for one of the version in which it is stored.
type typeless struct{ runtime.Decoder }

// Decode implements runtime.Decoder.
func (d typeless) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, stored, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, stored, err
}

// hubVersioner chooses the hub among all that a Go type is registered as.
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
