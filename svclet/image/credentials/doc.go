// Package credentials finds the credentials with which an image may be pulled.
//
// A [Keyring] holds those of docker configurations, by registry, and looks them
// up by the rules of kubelet's: the pull secrets of a pod make one
// ([FromSecrets]), the files of the node another ([Files]), and what credential
// provider plugins answer a third ([Plugins]).
package credentials
