package storage

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// Unreadable is the error of a stored object that cannot be decrypted or decoded, however
// often it is read.
type Unreadable struct {
	// Object is the resource, namespace and name of the object.
	Object string
	// Err is the reason.
	Err error
}

// Error implements error.
func (u *Unreadable) Error() string { return fmt.Sprintf("%s cannot be read: %v", u.Object, u.Err) }

// Unwrap returns the reason.
func (u *Unreadable) Unwrap() error { return u.Err }

// pageSize is how many objects Each reads at a time.
const pageSize = 500

// Each calls do for each object of a resource in etcd, decoded into one that newObject
// makes, without a watch cache. It ends with the first error: Unreadable, that of do, or
// another one of etcd or of a KMS plugin, after which the caller may try again.
func (b *Backend) Each(ctx context.Context, resource schema.GroupResource, decoder runtime.Decoder, newObject func() runtime.Object, do func(runtime.Object) error) error {
	from, end := b.keys(resource), clientv3.GetPrefixRangeEnd(b.keys(resource))
	for {
		page, err := b.clusterOf(resource).client.KV.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
		if err != nil {
			return fmt.Errorf("read %s: %w", resource, err)
		}
		for _, stored := range page.Kvs {
			obj, err := b.decode(ctx, resource, decoder, newObject(), stored)
			if err != nil {
				return err
			}
			if err := do(obj); err != nil {
				return err
			}
			from = string(stored.Key) + "\x00"
		}
		if !page.More {
			return nil
		}
	}
}

// decode decrypts and decodes a stored object. Errors are those of Each.
func (b *Backend) decode(ctx context.Context, resource schema.GroupResource, decoder runtime.Decoder, into runtime.Object, stored *mvccpb.KeyValue) (runtime.Object, error) {
	object := resource.String() + " " + strings.TrimPrefix(string(stored.Key), b.keys(resource))
	data, _, err := b.transformer(resource).TransformFromStorage(ctx, stored.Value, value.DefaultContext(stored.Key))
	if _, plugin := status.FromError(err); err != nil && (plugin || ctx.Err() != nil) {
		return nil, fmt.Errorf("decrypt %s: %w", object, err)
	}
	if err != nil {
		return nil, &Unreadable{object, err}
	}
	obj, _, err := decoder.Decode(data, nil, into)
	if err != nil {
		return nil, &Unreadable{object, err}
	}
	return obj, nil
}

// transformer returns what encrypts and decrypts the objects of a resource. Without
// encryption it refuses those that are encrypted.
func (b *Backend) transformer(resource schema.GroupResource) value.Transformer {
	if t := b.config.Transformers; t != nil {
		return t.TransformerForResource(resource)
	}
	return identity.NewEncryptCheckTransformer()
}
