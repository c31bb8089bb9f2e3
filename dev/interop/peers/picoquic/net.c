/* UDP over IPv4 with poll(2), and no more of it than a test needs. */
#define _GNU_SOURCE
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SOCKET_BUFFER (4 * 1024 * 1024)

int net_address(const char *text, struct sockaddr_in *address)
{
    char host[64];
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    if (length >= sizeof(host)) {
        return -1;
    }
    memcpy(host, text, length);
    host[length] = 0;
    memset(address, 0, sizeof(*address));
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)(colon ? atoi(colon + 1) : 0));
    return inet_pton(AF_INET, host, &address->sin_addr) == 1 ? 0 : -1;
}

int net_open(struct net *net, struct sockaddr_in address)
{
    socklen_t size = sizeof(address);
    int buffer = SOCKET_BUFFER;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (net->count == MAX_SOCKETS || fd < 0) {
        return -1;
    }
    if (bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    net->fds[net->count] = fd;
    net->locals[net->count] = address;
    return net->count++;
}

static int same(const struct sockaddr_in *a, const struct sockaddr_in *b)
{
    return a->sin_addr.s_addr == b->sin_addr.s_addr && a->sin_port == b->sin_port;
}

static struct road *road(struct net *net, int socket, const struct sockaddr_in *remote)
{
    for (int i = 0; i < net->road_count; i++) {
        if (same(&net->roads[i].local, &net->locals[socket]) &&
            same(&net->roads[i].remote, remote)) {
            return &net->roads[i];
        }
    }
    if (net->road_count == MAX_ROADS) {
        return &net->roads[MAX_ROADS - 1];
    }
    struct road *made = &net->roads[net->road_count++];
    made->local = net->locals[socket];
    made->remote = *remote;
    return made;
}

int net_send(struct net *net, const void *bytes, size_t length, struct sockaddr_in from,
    struct sockaddr_in to)
{
    int socket = 0;
    for (int i = 0; i < net->count; i++) {
        if (same(&net->locals[i], &from)) {
            socket = i;
        }
    }
    ssize_t sent = sendto(net->fds[socket], bytes, length, 0, (struct sockaddr *)&to, sizeof(to));
    if (sent < 0) {
        /* A full buffer is a lost datagram, as on any link. */
        return errno == EAGAIN ? 0 : errno;
    }
    road(net, socket, &to)->out += length;
    return 0;
}

size_t net_receive(struct net *net, int socket, void *bytes, size_t size, struct sockaddr_in *from)
{
    socklen_t length = sizeof(*from);
    ssize_t got = recvfrom(net->fds[socket], bytes, size, 0, (struct sockaddr *)from, &length);
    if (got <= 0) {
        return 0;
    }
    road(net, socket, from)->in += (uint64_t)got;
    return (size_t)got;
}

void net_wait(struct net *net, int64_t micros)
{
    struct pollfd polled[MAX_SOCKETS];
    struct timespec limit = { micros / 1000000, micros % 1000000 * 1000 };
    for (int i = 0; i < net->count; i++) {
        polled[i] = (struct pollfd) { .fd = net->fds[i], .events = POLLIN };
    }
    ppoll(polled, (nfds_t)net->count, &limit, NULL);
}

static void print_address(const struct sockaddr_in *address)
{
    printf(" %s:%u", inet_ntoa(address->sin_addr), ntohs(address->sin_port));
}

void net_report(const struct net *net)
{
    for (int i = 0; i < net->road_count; i++) {
        const struct road *road = &net->roads[i];
        printf("road");
        print_address(&road->local);
        print_address(&road->remote);
        printf(" in %llu out %llu\n", (unsigned long long)road->in,
            (unsigned long long)road->out);
    }
}
