/* Sockets of a peer, one per local address, and what went through each pair of addresses. */
#ifndef NET_H
#define NET_H

#include <netinet/in.h>
#include <stdint.h>

#define MAX_SOCKETS 4
#define MAX_ROADS 8
#define MAX_DATAGRAM 2048

/* A socket's address and one far end of it, in the order they were first seen. */
struct road {
    struct sockaddr_in local, remote;
    uint64_t in, out;
};

struct net {
    int count;
    int fds[MAX_SOCKETS];
    struct sockaddr_in locals[MAX_SOCKETS];
    int road_count;
    struct road roads[MAX_ROADS];
};

/* Reads "A.B.C.D:PORT"; port 0 if none is given. Returns 0 if that is an address. */
int net_address(const char *text, struct sockaddr_in *address);
/* Opens a socket on `address`; port 0 picks one. Returns its number or -1. */
int net_open(struct net *net, struct sockaddr_in address);
/* Sends from the socket with this local address, or the first one for none. Returns 0 or errno. */
int net_send(struct net *net, const void *bytes, size_t length, struct sockaddr_in from,
    struct sockaddr_in to);
/* Receives one datagram from a socket; 0 bytes if none waits. */
size_t net_receive(struct net *net, int socket, void *bytes, size_t size,
    struct sockaddr_in *from);
/* Waits until a socket has something, or so many microseconds. */
void net_wait(struct net *net, int64_t micros);
/* Prints a line "road LOCAL REMOTE in BYTES out BYTES" for each pair of addresses. */
void net_report(const struct net *net);

#endif
